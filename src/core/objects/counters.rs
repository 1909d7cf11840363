//! Counters of work, which tests compare with the size of a change.

/// Defines a struct of counters, all `usize`, with `since`: the work done since an earlier reading.
#[macro_export]
macro_rules! counters {
    ($(#[$of:meta])* pub struct $name:ident { $($(#[$doc:meta])* $field:ident),* $(,)? }) => {
        $(#[$of])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$doc])* pub $field: usize,)*
        }

        impl $name {
            /// The work done since an earlier reading.
            pub fn since(&self, before: &$name) -> $name {
                $name { $($field: self.$field - before.$field,)* }
            }
        }
    };
}
