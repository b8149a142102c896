"""The HTTP interface: resources under `/api`, numbered run events, and the workbench's files."""
