"""The messages of the Open Inference Protocol V2, in a package of ours."""
