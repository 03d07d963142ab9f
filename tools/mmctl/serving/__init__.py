"""What a command needs around it: a built workspace, a server, a client."""
