"""Where large tool results and the thread's files are: saved whole before the model sees anything of them.

`structure` reads what a text holds (pure), `store` keeps results with quota and expiry, `files` the thread's
lasting files, `offload` turns a large result into what the model is shown.
"""
