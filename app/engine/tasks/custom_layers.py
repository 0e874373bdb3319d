"""Run files of custom layers: see `app.engine.requests.custom_layers`."""

from __future__ import annotations

from app.engine.requests.custom_layers import RunLayerFiles
from app.engine.server import Context, handles
from app.source import layer_modules
from app.source.layer_files import LayerFile, LayerFileError
from app.util.frozen import FrozenMap


@handles(RunLayerFiles)
def run_layer_files(request: RunLayerFiles, _context: Context) -> FrozenMap[str, str]:
    return FrozenMap({file.sha256: _reason(file) for file in request.files})


def _reason(file: LayerFile) -> str:
    try:
        layer_modules.load(file)
    except LayerFileError as error:
        return str(error)
    return ""
