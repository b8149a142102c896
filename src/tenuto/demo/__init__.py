"""The demo world: a deterministic energy data set, its MCP server, and a rule-based model that reads requests.

The model acts only on what stands in the request it is given, so that a right number at the end proves that
the platform kept the right things in front of it. It is labelled as rule-based wherever it is offered.
"""
