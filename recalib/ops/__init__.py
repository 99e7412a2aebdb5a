"""The array operations of maps, with three backends.

A map is written once, as a function of `Ops` and arrays. The same code then runs

- in float64 NumPy (`NumpyOps`): the reference of every test;
- in torch (`TorchOps`), for gradients while fitting; imported only there;
- as a recorded ONNX graph (`OnnxOps`), which onnxruntime runs and users download.

Arrays of every backend support ``+ - * /`` with each other and with Python numbers. All other
operations are methods of `Ops`; rows are the first axis, classes the last. A new operation is one
method here, one in each backend, and a row in `tests/test_ops.py`.
"""

from recalib.ops.base import Ops
from recalib.ops.numpy_ops import NumpyOps

__all__ = ["NumpyOps", "Ops"]
