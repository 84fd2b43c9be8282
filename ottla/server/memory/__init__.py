"""What connections hold in memory: requests that have not come whole, answers that are not sent; and who goes first where it is short."""
