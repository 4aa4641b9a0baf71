//! Whether the machine stayed what it was, in one paragraph.

use super::Document;
use crate::attribute::References;
use crate::record::Record;

/// What the reference steps say; a note when the machine moved. Nothing without reference steps.
pub fn paragraph(record: &Record, document: &mut Document) {
    let Some(references) = References::of(record) else { return };
    let note = if references.drift().is_some() { "Note: " } else { "" };
    document.paragraph(format!("{note}{}", references.sentence()));
}
