std = "lua54"
cache = false
max_line_length = 100
unused_args = false
exclude_files = {"build*"}
files["spec"] = {std = "+busted"}
