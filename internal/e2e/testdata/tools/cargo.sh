cd rustp
cargo build
cargo test
cargo install --path . && rustp | grep hello
