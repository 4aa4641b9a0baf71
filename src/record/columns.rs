//! Per-thread values as one list a field: with hundreds of threads, field names would be most of a record.

use super::Detours;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Default, Serialize, Deserialize)]
struct Columns {
    window_ns: Vec<u64>,
    count: Vec<u64>,
    total_ns: Vec<u64>,
    longest_ns: Vec<u64>,
}

/// What a record may hold: the first versions wrote one object a thread.
#[derive(Deserialize)]
#[serde(untagged)]
enum Either {
    Columns(Columns),
    Rows(Vec<Detours>),
}

pub fn serialize<S: Serializer>(rows: &[Detours], serializer: S) -> Result<S::Ok, S::Error> {
    let mut columns = Columns::default();
    for row in rows {
        columns.window_ns.push(row.window_ns);
        columns.count.push(row.count);
        columns.total_ns.push(row.total_ns);
        columns.longest_ns.push(row.longest_ns);
    }
    columns.serialize(serializer)
}

pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Detours>, D::Error> {
    let columns = match Either::deserialize(deserializer)? {
        Either::Rows(rows) => return Ok(rows),
        Either::Columns(columns) => columns,
    };
    let threads = columns.window_ns.len();
    if [&columns.count, &columns.total_ns, &columns.longest_ns].iter().any(|column| column.len() != threads) {
        return Err(serde::de::Error::custom("the lists of detours differ in length"));
    }
    let row = |thread: usize| Detours {
        window_ns: columns.window_ns[thread],
        count: columns.count[thread],
        total_ns: columns.total_ns[thread],
        longest_ns: columns.longest_ns[thread],
    };
    Ok((0..threads).map(row).collect())
}
