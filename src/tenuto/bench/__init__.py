"""Measurements that can be run again: ratios against a floor taken in the same run."""
