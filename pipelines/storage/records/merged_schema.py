"""The common schema of several files, into which every value fits unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from forewarn.features.errors import InputError
from forewarn.features.records.text_columns import is_text
from forewarn.features.telemetry.telemetry_rows import OPTIONAL_NUMBERS
from forewarn.pipelines.storage.records.parquet_files import ParquetSource

__all__ = ["IncompatibleSchemasError", "MergedSchema"]


class IncompatibleSchemasError(InputError):
    """Files whose columns cannot be combined without changing values."""


@dataclass(frozen=True, slots=True)
class MergedSchema:
    """The columns of a merged file.

    Attributes
    ----------
    target : pyarrow.Schema
        Types on reading.
    working_schema : pyarrow.Schema
        Types while sorting and writing; texts are dictionaries.
    """

    target: pa.Schema
    working_schema: pa.Schema

    @classmethod
    def from_sources(cls, sources: Sequence[ParquetSource]) -> MergedSchema:
        """Return the schema that holds the values of all files.

        Raises
        ------
        IncompatibleSchemasError
            If a file lacks a column of another, or the types of a column are incompatible. A column
            of OPTIONAL_NUMBERS may be missing, since collectors write it only if a source has it.
        """
        first = sources[0]
        for source in sources[1:]:
            odd = set(source.column_names) ^ set(first.column_names)
            odd -= set(OPTIONAL_NUMBERS)
            if odd:
                raise IncompatibleSchemasError(
                    f"{source.name}: has different columns than {first.path.name} "
                    f"(`{min(odd)}` is in one of them), expected the same in all files of a date."
                )
        schemas = [_without_pandas(source.schema) for source in sources]
        names = dict.fromkeys(name for schema in schemas for name in schema.names)
        fields = [_merged_field(schemas, name, sources) for name in names]
        target = pa.schema(fields, metadata=schemas[0].metadata)
        return cls(target, pa.schema([field.with_type(_working(field.type)) for field in target]))

    def working(self, table: pa.Table, file: str) -> pa.Table:
        """Convert the rows of a file to the types of the merged file.

        Raises
        ------
        IncompatibleSchemasError
            If a value would change.
        """
        fields = list(self.working_schema)
        columns = [_column(table, field) for field in fields]
        try:
            cast = [c.cast(field.type) for c, field in zip(columns, fields, strict=True)]
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            detail = str(error).splitlines()[0]
            raise IncompatibleSchemasError(
                f"{file}: cannot be combined with the other files ({detail})."
            ) from None
        return pa.Table.from_arrays(cast, schema=self.working_schema)


def _column(table: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    """Return a column of a file, null if the file lacks it."""
    if field.name in table.column_names:
        return table[field.name]
    return pa.chunked_array([pa.nulls(len(table), field.type)])


def _without_pandas(schema: pa.Schema) -> pa.Schema:
    """Drop the pandas metadata of one file, such as the length of its index."""
    metadata = {k: v for k, v in (schema.metadata or {}).items() if k != b"pandas"}
    return schema.with_metadata(metadata or None)


def _merged_field(
    schemas: Sequence[pa.Schema], name: str, sources: Sequence[ParquetSource]
) -> pa.Field:
    """Return the field that holds a column of all files."""
    sources = [source for source in sources if name in source.column_names]
    parts = [schema.field(name) for schema in schemas if name in schema.names]
    kinds = {part.type for part in parts}
    if len(kinds) > 1 and all(is_text(kind) or pa.types.is_null(kind) for kind in kinds):
        return pa.field(name, pa.string())
    try:
        merged = pa.unify_schemas([pa.schema([p]) for p in parts], promote_options="permissive")
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        other = next(i for i, part in enumerate(parts) if part.type != parts[0].type)
        raise IncompatibleSchemasError(
            f"{sources[other].name}: column `{name}` is {parts[other].type}, and {parts[0].type} "
            f"in {sources[0].path.name}, expected compatible types."
        ) from None
    return merged.field(0)


def _working(kind: pa.DataType) -> pa.DataType:
    """Return the type for sorting and writing."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    plain = (pa.string(), pa.large_string())
    return pa.dictionary(pa.int32(), kind) if kind in plain else kind
