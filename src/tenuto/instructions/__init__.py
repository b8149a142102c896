"""How work is done here: AGENTS.md and CLAUDE.md, and skills."""
