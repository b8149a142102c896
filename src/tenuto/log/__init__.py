"""What happened: an append-only file of records for each thread, and nothing else.

`record` has the values and their format, `store` the file of one thread (append, read from the tail, page,
find), `blobs` its binary content, `threads` the list of a workspace's threads with their owners.
"""
