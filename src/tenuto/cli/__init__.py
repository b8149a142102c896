"""The command line. `main` is the entry; heavy imports wait until a command needs them."""
