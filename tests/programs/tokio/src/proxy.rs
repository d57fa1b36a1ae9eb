//! Asks one upstream for `/slow` and another for `/other`, through connections that it keeps; answers everything else
//! itself. With a timer it computes for a millisecond every 10 ms, and asks the other upstream each fourth time.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task, time,
};

use crate::Result;

/// A server that is asked.
struct Upstream {
    port: u16,
    /// The connections to it that nobody uses.
    idle: Mutex<Vec<TcpStream>>,
}

impl Upstream {
    fn new(port: u16) -> Arc<Self> {
        Arc::new(Self { port, idle: Mutex::default() })
    }
}

/// Serves until it is killed; says `ready`.
pub async fn serve(port: u16, slow: u16, other: u16, has_timer: bool) -> Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let (slow, other) = (Upstream::new(slow), Upstream::new(other));
    if has_timer {
        task::spawn(tick(Arc::clone(&other)));
    }
    println!("ready");
    loop {
        let (stream, _) = listener.accept().await?;
        // Else the second of two answers waits for the acknowledgement of the first.
        stream.set_nodelay(true)?;
        task::spawn(serve_client(stream, Arc::clone(&slow), Arc::clone(&other)));
    }
}

async fn tick(other: Arc<Upstream>) {
    let mut timer = time::interval(Duration::from_millis(10));
    for ticks in 0_u32.. {
        timer.tick().await;
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(1) {}
        if ticks.is_multiple_of(4) {
            let other = Arc::clone(&other);
            task::spawn(async move { ask(&other).await });
        }
    }
}

async fn serve_client(
    mut client: TcpStream,
    slow: Arc<Upstream>,
    other: Arc<Upstream>,
) -> Result<()> {
    loop {
        let head = read_head(&mut client).await?;
        let mut body = *b"answer";
        if head.starts_with(b"GET /slow ") {
            body = ask(&slow).await?;
        } else if head.starts_with(b"GET /other ") {
            body = ask(&other).await?;
        }
        let answer = [&b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n"[..], &body].concat();
        client.write_all(&answer).await?;
    }
}

async fn ask(upstream: &Upstream) -> Result<[u8; 6]> {
    let kept = upstream.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let mut server = match kept {
        Some(server) => server,
        None => TcpStream::connect(("127.0.0.1", upstream.port)).await?,
    };
    server.write_all(b"GET / HTTP/1.1\r\nHost: upstream\r\n\r\n").await?;
    read_head(&mut server).await?;
    let mut body = [0; 6];
    server.read_exact(&mut body).await?;
    upstream.idle.lock().unwrap_or_else(PoisonError::into_inner).push(server);
    Ok(body)
}

/// Reads up to the empty line. What comes behind it is left there: the next request, or a result's body.
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
