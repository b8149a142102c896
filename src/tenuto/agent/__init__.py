"""One turn: question, model, tools, answer. The only package that runs Pydantic AI agents.

`conversation` is a thread ready for turns (log and context together), `models` finds a model by name, `mcp`
the tool servers, `tools` what Tenuto itself offers the model, `turn` the loop, `app` the composition root.
"""
