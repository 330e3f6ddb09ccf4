//! Addresses on the command line: an IP address and a port, never a name.

use std::net::SocketAddr;

/// Reads `IP:PORT`. Names are not looked up, because what they mean can change between two starts.
pub(crate) fn parse(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| "not an IP address with a port; write it like 127.0.0.1:8000".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_an_ip_and_a_port() {
        assert!(parse("127.0.0.1:8000").is_ok());
        assert!(parse("[::1]:0").is_ok());
        for text in ["", "127.0.0.1", "localhost:8000", "127.0.0.1:99999", ":8000"] {
            assert!(
                parse(text).is_err_and(|why| why.contains("127.0.0.1:8000")),
                "{text:?}"
            );
        }
    }
}
