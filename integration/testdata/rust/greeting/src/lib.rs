pub const TEXT: &str = "hello from a crate";
