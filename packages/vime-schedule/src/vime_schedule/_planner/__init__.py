"""How the micro-batches of one optimizer step are found: integers in, rows of micro-batches out."""
