"""Training the demo models again: corpora, tokenizer, sparsity in training, the loop. Needs torch, transformers."""
