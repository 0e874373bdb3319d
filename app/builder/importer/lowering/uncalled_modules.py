"""Modules and tensors that `forward` never uses: kept nodes on the sheet of their module, so that the state_dict has
the model's keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torch import nn

from app.builder.catalog.catalog import Catalog
from app.builder.importer.fallback_report import inside
from app.builder.importer.lowering.binding import BindingError
from app.builder.importer.lowering.ir import VALUES, Draft, drafts_in
from app.builder.importer.lowering.lowering import tensor_params
from app.builder.importer.lowering.modules import described, key_of
from app.builder.importer.lowering.parameter_order import partly_frozen, wholly_frozen
from app.util import module_tree


def keep_unused(root: Draft, model: nn.Module, catalog: Catalog) -> None:
    """Add a node for every parameter and buffer without one; for those of a whole layer, that layer."""
    drafts: dict[str, list[Draft]] = {}
    keys_on_sheets: set[str] = set()
    for draft in drafts_in(root):
        drafts.setdefault(draft.path, []).append(draft)
        keys_on_sheets.update(_keys_on_sheet(draft, model, catalog))
    missing = [key for key in _keys(model) if key not in keys_on_sheets]
    if not missing:
        return
    sheets = sorted(drafts, key=len, reverse=True)
    of_sheet: dict[str, list[str]] = {}
    for key in missing:
        sheet = next(path for path in sheets if inside(key.rpartition(".")[0], path))
        of_sheet.setdefault(sheet, []).append(key)
    for path, keys in of_sheet.items():
        for name, op, params in list(_nodes(model, path, set(keys), catalog)):
            layer = (
                model.get_submodule(f"{path}.{name}" if path else name)
                if op not in VALUES
                else None
            )
            for draft in drafts[path]:
                node = draft.add(op, name, dict(params))
                node.kept, node.frozen = (
                    True,
                    None if layer is None else wholly_frozen(layer),
                )


def _keys(model: nn.Module) -> Iterator[str]:
    """Yield the tensor keys of the state_dict, in order."""
    for path, module in module_tree.named_modules(model, remove_duplicate=False):
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            if tensor is not None and name not in module._non_persistent_buffers_set:
                yield f"{path}.{name}" if path else name


def _keys_on_sheet(draft: Draft, model: nn.Module, catalog: Catalog) -> Iterator[str]:
    """Yield the keys that the nodes of a sheet hold, those inside blocks excepted."""
    for node in draft.nodes.values():
        path = f"{draft.path}.{node.name}" if draft.path else node.name
        if node.op in VALUES:
            yield path
        elif (
            node.op
            and catalog[node.op].kind in ("module", "custom")
            and not (node.shares or node.written)
        ):
            covers_model = (
                node.name == "self" and not draft.path
            )  # a model that is one node
            layer = model if covers_model else model.get_submodule(path)
            yield from (
                (key if covers_model else f"{path}.{key}") for key in layer.state_dict()
            )


def _nodes(
    model: nn.Module, sheet: str, missing: set[str], catalog: Catalog
) -> Iterator[tuple[str, str, Mapping[str, object]]]:
    """Yield names, ops and parameters of nodes for the missing keys of a sheet."""
    prefix = f"{sheet}." if sheet else ""
    done: set[str] = set()
    for path, module in module_tree.named_modules(
        model.get_submodule(sheet), remove_duplicate=False
    ):
        full_path = f"{prefix}{path}" if path else sheet
        if any(inside(full_path, other) for other in done):
            continue
        keys = [
            f"{full_path}.{key}" if full_path else key for key in module.state_dict()
        ]
        as_one = key_of(module, catalog) is not None and not partly_frozen(module)
        if path and keys and missing.issuperset(keys) and as_one:
            try:
                spec, params = described(module, catalog)
            except (
                BindingError
            ):  # modified after construction: keep its tensors one by one
                pass
            else:
                done.add(full_path)
                yield path, spec.key, params
                continue
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            key = f"{full_path}.{name}" if full_path else name
            if tensor is not None and key in missing:
                op = "parameter" if name in module._parameters else "buffer"
                yield key.removeprefix(prefix), op, tensor_params(tensor)
