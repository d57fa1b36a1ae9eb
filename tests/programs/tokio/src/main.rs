//! Clients that ask a server over the loopback, a task that sleeps, tasks that hand each other messages, and work
//! on threads that may block. Says `ready`, and goes on until it is killed. With the argument `idle` nobody asks.
//! With `blocks` there is one task instead, which blocks its worker for 20 ms again and again; with `yields` it has a
//! thread that may block do so.
//! With `proxy PORT SLOW OTHER MODE` it serves others
//! instead, and asks these two.

mod proxy;

use std::{error::Error, thread, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    runtime::Builder,
    sync::mpsc,
    task, time,
};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const CLIENTS: u32 = 2;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    match arguments[..] {
        ["proxy", port, slow, other, mode] => {
            let [port, slow, other] = [port.parse()?, slow.parse()?, other.parse()?];
            runtime.block_on(proxy::serve(port, slow, other, mode == "timer"))
        }
        ["blocks"] => runtime.block_on(runtime.spawn(load_prices(false)))?,
        ["yields"] => runtime.block_on(runtime.spawn(load_prices(true)))?,
        _ => runtime.block_on(run(arguments == ["idle"])),
    }
}

async fn load_prices(may_block: bool) -> Result<()> {
    println!("ready");
    loop {
        let price = match may_block {
            true => task::spawn_blocking(load_price).await?,
            false => load_price(),
        };
        assert!(price > 0);
        time::sleep(Duration::from_millis(1)).await;
    }
}

/// Sleeps, and has something left to do then: it has a frame of its own.
#[inline(never)]
fn load_price() -> u32 {
    thread::sleep(Duration::from_millis(20));
    std::process::id()
}

async fn run(is_idle: bool) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    task::spawn(serve(listener));
    let mut clients = task::JoinSet::new();
    for _ in 0..CLIENTS {
        let stream = TcpStream::connect(address).await?;
        clients.spawn(async move {
            if is_idle {
                time::sleep(Duration::from_secs(86_400)).await
            }
            ask(stream).await
        });
    }
    println!("ready");
    while let Some(ended) = clients.join_next().await {
        ended??;
    }
    Ok(())
}

async fn ask(mut stream: TcpStream) -> Result<()> {
    let mut answer = [0; 8];
    loop {
        stream.write_all(b"question").await?;
        stream.read_exact(&mut answer).await?;
    }
}

async fn serve(listener: TcpListener) -> Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        task::spawn(answer(stream));
    }
}

/// Every answer has gone through another task and a thread that may block.
async fn answer(mut stream: TcpStream) -> Result<()> {
    let (questions, mut asked) = mpsc::channel::<[u8; 8]>(1);
    let (answers, mut answered) = mpsc::channel(1);
    task::spawn(async move {
        while let Some(question) = asked.recv().await {
            let answer = task::spawn_blocking(move || {
                thread::sleep(Duration::from_micros(500));
                question
            });
            if answers.send(answer.await?).await.is_err() {
                break;
            }
        }
        Ok::<_, task::JoinError>(())
    });
    let mut question = [0; 8];
    loop {
        stream.read_exact(&mut question).await?;
        time::sleep(Duration::from_micros(200)).await;
        questions.send(question).await?;
        let Some(answer) = answered.recv().await else { return Ok(()) };
        stream.write_all(&answer).await?;
    }
}
