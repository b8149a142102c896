"""Code that a model writes runs here, and nowhere else.

`protocol` has the values and the three protocols, `policy` the command line and the system-call filter,
`bubblewrap` the local engine, `worker` the program inside, `processes` what the host sees of it, `manager` the
life of a thread's interpreter, `environment` the interpreter environment of the sandbox.
"""
