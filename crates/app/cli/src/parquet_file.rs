//! The table of a sweep as a Parquet file: texts as UTF-8, measures as doubles, empty cells as nulls.

use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use std::io::{self, Write};
use std::sync::Arc;
use trainyard_experiment::sweep_table::{Column, Table, Values};
use trainyard_report::SCHEMA_VERSION;

/// Writes a table as one row group, uncompressed.
pub fn write(table: &Table, out: &mut dyn Write) -> io::Result<()> {
    // The writer of the crate wants to send its sink between threads, so the file is made in memory first.
    let mut bytes = Vec::new();
    encode(table, &mut bytes).map_err(io::Error::other)?;
    out.write_all(&bytes)
}

fn encode(table: &Table, out: &mut Vec<u8>) -> Result<(), ParquetError> {
    let fields = table.columns.iter().map(|column| field(column).map(Arc::new));
    let fields: Vec<Arc<Type>> = fields.collect::<Result<_, ParquetError>>()?;
    let schema = Arc::new(Type::group_type_builder("sweep").with_fields(fields).build()?);
    let created = format!("trainyard, schema {SCHEMA_VERSION}");
    let properties = Arc::new(WriterProperties::builder().set_created_by(created).build());
    let mut writer = SerializedFileWriter::new(out, schema, properties)?;
    let mut group = writer.next_row_group()?;
    for column in &table.columns {
        let Some(mut next) = group.next_column()? else { break };
        match &column.values {
            Values::Texts(texts) => {
                let present = texts.iter().flatten();
                let values: Vec<ByteArray> = present.map(|text| text.as_str().into()).collect();
                next.typed::<ByteArrayType>().write_batch(&values, Some(&levels(texts)), None)?;
            }
            Values::Numbers(numbers) => {
                let values: Vec<f64> = numbers.iter().flatten().copied().collect();
                next.typed::<DoubleType>().write_batch(&values, Some(&levels(numbers)), None)?;
            }
        }
        next.close()?;
    }
    group.close()?;
    writer.close().map(|_| ())
}

fn field(column: &Column) -> Result<Type, ParquetError> {
    let (physical, logical) = match column.values {
        Values::Texts(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        Values::Numbers(_) => (Physical::DOUBLE, None),
    };
    Type::primitive_type_builder(&column.name, physical)
        .with_logical_type(logical)
        .with_repetition(Repetition::OPTIONAL)
        .build()
}

/// 1 where there is a value, 0 where there is none.
fn levels<T>(values: &[Option<T>]) -> Vec<i16> {
    values.iter().map(|value| i16::from(value.is_some())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;

    #[test]
    fn what_is_written_is_read_back_by_name_and_type() {
        let texts = vec![Some("fifo, \"é\"".to_owned()), None, Some(String::new())];
        let numbers = vec![Some(1.5), Some(-0.0), None];
        let column = |name: &str, values| Column { name: name.to_owned(), values };
        let columns = vec![
            column("policy", Values::Texts(texts)),
            column("las.quantum", Values::Numbers(numbers)),
        ];
        let path = std::env::temp_dir().join(format!("trainyard-{}.parquet", std::process::id()));
        let mut file = std::fs::File::create(&path).expect("a file");
        write(&Table { columns, rows: 3 }, &mut file).expect("the file takes everything");
        let file = std::fs::File::open(&path).expect("the file");
        let reader = SerializedFileReader::new(file).expect("a Parquet file");
        let rows: Vec<Vec<(String, Field)>> = reader
            .get_row_iter(None)
            .expect("rows")
            .map(|row| {
                let row = row.expect("a row");
                row.get_column_iter().map(|(name, field)| (name.clone(), field.clone())).collect()
            })
            .collect();
        let _ = std::fs::remove_file(&path);
        let expected = |text: Field, number: Field| {
            vec![("policy".to_owned(), text), ("las.quantum".to_owned(), number)]
        };
        let text = |text: &str| Field::Str(text.to_owned());
        assert_eq!(
            rows,
            [
                expected(text("fifo, \"é\""), Field::Double(1.5)),
                expected(Field::Null, Field::Double(-0.0)),
                expected(text(""), Field::Null),
            ]
        );
    }
}
