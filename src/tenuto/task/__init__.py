"""The task ledger: where the work stands, item by item, each with the words it rests on."""
