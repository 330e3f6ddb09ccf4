//! Hellos over a fresh connection, each side within the handshake deadline.

use std::io;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use weir_proto::wire::{Answer, Hello, HelloError, PREFIX, RefuseCode};

/// Why no link came of a connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandshakeError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Hello(#[from] HelloError),
    #[error("{1}")]
    Refused(RefuseCode, String),
}

/// Reads one hello's body. Memory grows to what the prefix announces, at most 4 KiB.
async fn read_body(stream: &mut TcpStream) -> Result<Vec<u8>, HandshakeError> {
    let mut prefix = [0; PREFIX];
    stream.read_exact(&mut prefix).await?;
    let mut body = vec![0; Hello::body_len(prefix)?];
    stream.read_exact(&mut body).await?;
    Ok(body)
}

/// The dialer's side: says hello and waits for the answer.
pub(crate) async fn dial(stream: &mut TcpStream, hello: &Hello) -> Result<Hello, HandshakeError> {
    stream.write_all(&hello.encode()).await?;
    match Answer::decode(&read_body(stream).await?)? {
        Answer::Accept(peer) => Ok(peer),
        Answer::Refuse(code, message) => Err(HandshakeError::Refused(code, message)),
    }
}

/// The acceptor's side, first half: waits for the dialer's hello; a version mismatch is answered here.
pub(crate) async fn accept(stream: &mut TcpStream) -> Result<Hello, HandshakeError> {
    let body = read_body(stream).await?;
    match Hello::decode(&body) {
        Ok(hello) => Ok(hello),
        Err(error) => {
            if matches!(error, HelloError::Version { .. }) {
                let version = weir_proto::wire::VERSION;
                refuse(
                    stream,
                    RefuseCode::Version,
                    &format!("this node speaks version {version}"),
                )
                .await;
            }
            Err(error.into())
        }
    }
}

/// The acceptor's side, second half.
pub(crate) async fn welcome(stream: &mut TcpStream, hello: Hello) -> io::Result<()> {
    stream.write_all(&Answer::Accept(hello).encode()).await
}

/// Tells the dialer why not. It may be gone already.
pub(crate) async fn refuse(stream: &mut TcpStream, code: RefuseCode, message: &str) {
    let _gone = stream
        .write_all(&Answer::Refuse(code, message.to_owned()).encode())
        .await;
    let _gone = stream.shutdown().await;
}
