-- A transform for the loader's specs that fails.
return function()
  error("broken on purpose")
end
