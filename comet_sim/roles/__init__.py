"""What each party does: the programs of the user, the servers, the dealer and the model owner."""
