//! The format of objects that store what the controller has to know later: an annotation with a
//! number. A controller that does not know the format of an object does not use it and does not
//! write it. Pure.

use kube::core::ObjectMeta;

/// The annotation. An object without it has format 1.
pub(crate) const ANNOTATION: &str = "gatewright.io/format";
/// The format that this version writes. A change that older versions would misread raises it.
pub(crate) const FORMAT: u32 = 1;

/// A format that this version does not know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a newer version wrote this in format {0}, and this version knows format {FORMAT}; install that version or a newer one; \
     nothing was changed"
)]
pub struct NewerFormat(pub(crate) u32);

/// Checks that the format of an object is known. A value that is no number is not from any version,
/// and is ignored.
pub(crate) fn check(metadata: &ObjectMeta) -> Result<(), NewerFormat> {
    let says = metadata
        .annotations
        .as_ref()
        .and_then(|all| all.get(ANNOTATION)?.parse().ok());
    match says {
        Some(format) if format > FORMAT => Err(NewerFormat(format)),
        _ => Ok(()),
    }
}

/// Records the format that this version writes.
pub(crate) fn record(metadata: &mut ObjectMeta) {
    metadata
        .annotations
        .get_or_insert_default()
        .insert(ANNOTATION.to_owned(), FORMAT.to_string());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_format_is_known_from_the_annotation() {
        let mut metadata = ObjectMeta::default();
        assert_eq!(
            check(&metadata),
            Ok(()),
            "an object of a version that recorded none"
        );
        record(&mut metadata);
        assert_eq!(check(&metadata), Ok(()));
        for (says, known) in [("2", Err(NewerFormat(2))), ("0", Ok(())), ("two", Ok(()))] {
            metadata
                .annotations
                .get_or_insert_default()
                .insert(ANNOTATION.to_owned(), says.to_owned());
            assert_eq!(check(&metadata), known, "{says}");
        }
    }
}
