//! Answers every request with the text of a crate.
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::{env, io, thread};

fn answer(mut client: TcpStream) -> io::Result<()> {
    let mut lines = BufReader::new(client.try_clone()?).lines();
    while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
    let text = greeting::TEXT;
    write!(client, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}", text.len())
}

fn main() -> io::Result<()> {
    let port = env::var("PORT").expect("PORT");
    for client in TcpListener::bind(format!("0.0.0.0:{port}"))?.incoming() {
        let client = client?;
        thread::spawn(move || answer(client));
    }
    Ok(())
}
