"""ONNX in and out: foreign models as modules of Tensor code, our graphs as ONNX models.

    from tinytorch.onnx import export_onnx, import_onnx

    model = import_onnx("model.onnx")       # a Module; trace it, compile it, train it
    export_onnx(trace(model, x), "out.onnx")

Source: the ONNX operator specification, https://onnx.ai/onnx/operators/.
"""

from tinytorch.onnx.errors import (
    DamagedOnnxError as DamagedOnnxError,
    UnsupportedOnnxError as UnsupportedOnnxError,
)
from tinytorch.onnx.exporter import export_onnx as export_onnx
from tinytorch.onnx.importer import OnnxModule as OnnxModule, import_onnx as import_onnx
