"""Models: configurations, checkpoints, the catalogue, plain references and private forwards."""
