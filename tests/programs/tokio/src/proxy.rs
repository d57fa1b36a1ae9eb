//! Asks its upstream for `/slow`, through connections that it keeps; answers everything else itself.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task,
};

use crate::Result;

/// The connections to the upstream that nobody uses.
type IdleConnections = Arc<Mutex<Vec<TcpStream>>>;

/// Serves until it is killed; says `ready`.
pub async fn serve(port: u16, upstream: u16) -> Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let idle = IdleConnections::default();
    println!("ready");
    loop {
        let (stream, _) = listener.accept().await?;
        task::spawn(serve_client(stream, upstream, Arc::clone(&idle)));
    }
}

async fn serve_client(mut client: TcpStream, upstream: u16, idle: IdleConnections) -> Result<()> {
    loop {
        let head = read_head(&mut client).await?;
        let mut body = *b"answer";
        if head.starts_with(b"GET /slow ") {
            body = ask(upstream, &idle).await?;
        }
        let answer = [&b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n"[..], &body].concat();
        client.write_all(&answer).await?;
    }
}

async fn ask(upstream: u16, idle: &IdleConnections) -> Result<[u8; 6]> {
    let kept = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let mut server = match kept {
        Some(server) => server,
        None => TcpStream::connect(("127.0.0.1", upstream)).await?,
    };
    server.write_all(b"GET / HTTP/1.1\r\nHost: upstream\r\n\r\n").await?;
    read_head(&mut server).await?;
    let mut body = [0; 6];
    server.read_exact(&mut body).await?;
    idle.lock().unwrap_or_else(PoisonError::into_inner).push(server);
    Ok(body)
}

/// Reads up to the empty line. Nothing comes behind a request before its answer; a result's body may, and
/// is left there.
async fn read_head(stream: &mut TcpStream) -> Result<Vec<u8>> {
    let mut head = Vec::new();
    loop {
        let mut seen = [0; 512];
        let length = stream.peek(&mut seen).await?;
        if length == 0 {
            return Err("the other end is gone".into());
        }
        let seen = &seen[..length];
        let before = head.len();
        head.extend_from_slice(seen);
        let end = head.windows(4).position(|bytes| bytes == b"\r\n\r\n").map(|at| at + 4);
        head.truncate(end.unwrap_or(head.len()));
        let used = head.len() - before;
        stream.read_exact(&mut vec![0; used]).await?;
        if end.is_some() {
            return Ok(head);
        }
    }
}
