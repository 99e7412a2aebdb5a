"""Who may do what with a server: keys, the rules, and who is acting."""
