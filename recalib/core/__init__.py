"""What every package uses: errors of arrays, inputs, names, options, text."""
