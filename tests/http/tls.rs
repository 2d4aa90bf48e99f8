//! TLS: the same service, the same limits, and a certificate that can change.

use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use holdfast::{http::server::tls::Tls, model::Limits};
use rcgen::{CertificateParams, CertifiedKey, KeyPair, generate_simple_self_signed};
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, ProtocolVersion, RootCertStore, StreamOwned,
    SupportedProtocolVersion,
    crypto::ring,
    pki_types::{CertificateDer, ServerName},
    version::{TLS12, TLS13},
};

use crate::support::{Client, Server, loopback, short, until};

type Stream = StreamOwned<ClientConnection, TcpStream>;

fn pair() -> CertifiedKey<KeyPair> {
    generate_simple_self_signed(["localhost".to_owned()]).unwrap()
}

fn tls(pair: &CertifiedKey<KeyPair>) -> Arc<Tls> {
    let tls = Tls::new(
        pair.cert.pem().as_bytes(),
        pair.signing_key.serialize_pem().as_bytes(),
    );
    Arc::new(tls.unwrap())
}

/// A server that shows `tls`.
fn server(limits: Limits, tls: &Arc<Tls>) -> Server {
    let tls = Arc::clone(tls);
    Server::on(limits, move || loopback().with_tls(tls))
}

/// A client that trusts `pair` and nothing else; it has not shaken hands yet.
fn client(
    stream: TcpStream,
    pair: &CertifiedKey<KeyPair>,
    versions: &[&'static SupportedProtocolVersion],
) -> Stream {
    let mut roots = RootCertStore::empty();
    roots.add(pair.cert.der().clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let session = ClientConnection::new(Arc::new(config), name).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    StreamOwned::new(session, stream)
}

fn connect(server: &Server, pair: &CertifiedKey<KeyPair>) -> Stream {
    client(server.connect().stream, pair, &[&TLS13, &TLS12])
}

fn get(stream: &mut Stream, target: &str, fields: &str) -> std::io::Result<()> {
    let head = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n");
    stream.write_all(head.as_bytes())
}

/// Everything up to the end, which TLS announces.
fn to_end(stream: &mut Stream) -> String {
    let mut all = String::new();
    stream.read_to_string(&mut all).unwrap();
    all
}

/// One answer of a kept connection.
fn hello(stream: &mut Stream) -> bool {
    if get(stream, "/", "").is_err() {
        return false;
    }
    let mut all = Vec::new();
    let mut octet = [0];
    while !all.ends_with(b"hello") {
        match stream.read(&mut octet) {
            Ok(1) => all.push(octet[0]),
            Ok(_) | Err(_) => return false,
        }
    }
    true
}

fn shown(stream: &Stream) -> CertificateDer<'static> {
    stream.conn.peer_certificates().unwrap()[0].clone()
}

#[test]
fn both_versions_are_spoken_and_the_end_is_announced() {
    let pair = pair();
    let server = server(short(), &tls(&pair));
    for (version, expected) in [
        (&TLS12, ProtocolVersion::TLSv1_2),
        (&TLS13, ProtocolVersion::TLSv1_3),
    ] {
        let mut stream = client(server.connect().stream, &pair, &[version]);
        get(&mut stream, "/bytes?3000000", "Connection: close\r\n").unwrap();
        let all = to_end(&mut stream);
        assert_eq!(stream.conn.protocol_version(), Some(expected));
        assert!(all.starts_with("HTTP/1.1 200 OK\r\n"));
        assert_eq!(all.split_once("\r\n\r\n").unwrap().1.len(), 3_000_000);
    }
}

#[test]
fn a_new_certificate_meets_new_connections_and_cuts_none() {
    let (old, new) = (pair(), pair());
    let tls = tls(&old);
    let server = server(Limits::default(), &tls);
    let mut living = connect(&server, &old);
    assert!(hello(&mut living));
    let mut running = connect(&server, &old);
    get(&mut running, "/bytes?20000000", "Connection: close\r\n").unwrap();
    running.read_exact(&mut [0; 100]).unwrap();
    // Act
    tls.replace(
        new.cert.pem().as_bytes(),
        new.signing_key.serialize_pem().as_bytes(),
    )
    .unwrap();
    // Assert
    let mut fresh = connect(&server, &new);
    assert!(hello(&mut fresh));
    assert_eq!(shown(&fresh), *new.cert.der());
    assert!(!hello(&mut connect(&server, &old)), "the old one is gone");
    assert!(hello(&mut living), "what lives goes on");
    assert!(to_end(&mut running).len() > 19_900_000);
    assert_eq!(shown(&living), *old.cert.der());
}

#[test]
fn a_pair_that_does_not_fit_is_refused_and_the_old_one_stays() {
    let (old, new) = (pair(), pair());
    let (cert, key) = (new.cert.pem(), new.signing_key.serialize_pem());
    let shown = tls(&old);
    let server = server(short(), &shown);
    let wrong = old.signing_key.serialize_pem();
    let cut = key.split_at(key.len() / 2).0;
    for (cert, key) in [
        (cert.as_str(), wrong.as_str()),
        (cert.as_str(), ""),
        (cert.as_str(), cut),
        (cert.as_str(), cert.as_str()),
        ("", key.as_str()),
        (key.as_str(), key.as_str()),
        (
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            key.as_str(),
        ),
        (cert.repeat(17).as_str(), key.as_str()),
    ] {
        assert!(Tls::new(cert.as_bytes(), key.as_bytes()).is_err());
        assert!(shown.replace(cert.as_bytes(), key.as_bytes()).is_err());
    }
    assert!(hello(&mut connect(&server, &old)));
}

/// Keeps I11: a handshake has the time of a head, and silence after it is silence.
#[test]
fn a_handshake_that_stalls_is_closed_at_the_head_deadline() {
    let pair = pair();
    let server = server(short(), &tls(&pair));
    let hello = {
        // What a real client says first, cut in the middle.
        let mut stream = connect(&server, &pair);
        let mut octets = Vec::new();
        stream.conn.write_tls(&mut octets).unwrap();
        octets
    };
    assert!(server.settles(Duration::from_secs(3)));
    for said in [
        &hello[..0],
        &hello[..1],
        &hello[..hello.len() / 2],
        &hello[..],
    ] {
        let mut client = server.connect();
        client.say(said);
        let start = Instant::now();
        let (heard, _) = client.rest();
        assert!(start.elapsed() < Duration::from_secs(10));
        // To a whole greeting the server answers; to none it says nothing, above all nothing in plain.
        assert_eq!(heard > 0, said.len() == hello.len(), "{}", said.len());
        assert!(server.settles(Duration::from_secs(3)));
    }
    let mut silent = connect(&server, &pair);
    silent.conn.complete_io(&mut silent.sock).unwrap();
    assert_eq!(to_end(&mut silent), "", "nothing was asked");
    assert_eq!(server.served(), 0);
}

/// Keeps I11.
#[test]
fn a_head_that_drips_is_answered_408_inside_tls() {
    let pair = pair();
    let server = server(short(), &tls(&pair));
    let mut stream = connect(&server, &pair);
    stream.write_all(b"GET / HT").unwrap();
    let answer = to_end(&mut stream);
    assert!(
        answer.starts_with("HTTP/1.1 408 ") && answer.ends_with("SlowHead"),
        "{answer}"
    );
    assert!(server.settles(Duration::from_secs(3)));
}

#[test]
fn a_head_that_cannot_be_read_is_refused_inside_tls() {
    let pair = pair();
    let server = server(short(), &tls(&pair));
    let mut stream = connect(&server, &pair);
    stream.write_all(b"GET /a b HTTP/1.1\r\n\r\n").unwrap();
    let answer = to_end(&mut stream);
    assert!(
        answer.starts_with("HTTP/1.1 400 ") && answer.ends_with("Head(Syntax)"),
        "{answer}"
    );
}

/// Keeps I11: the stall timer counts what the peer acknowledged, below TLS.
#[test]
fn a_reader_that_stops_is_reset_and_a_slow_one_is_served() {
    let pair = pair();
    let limits = short();
    let server = server(limits.clone(), &tls(&pair));
    let narrow = || client(server.connect_narrow().stream, &pair, &[&TLS13]);
    let mut stopped = narrow();
    get(&mut stopped, "/bytes?50000000", "").unwrap();
    stopped.read_exact(&mut [0; 10]).unwrap();
    assert!(until(Duration::from_secs(1), || server.busy() == 1));
    assert!(
        server.settles(Duration::from_secs(5)),
        "{:?}",
        server.traffic
    );
    assert_eq!(server.traffic.cut(), 1);
    let error = std::io::copy(&mut stopped, &mut std::io::sink()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    // Far slower than the stall time, but never still.
    let mut slow = narrow();
    get(&mut slow, "/bytes?400000", "Connection: close\r\n").unwrap();
    let (start, mut taken, mut sip) = (Instant::now(), 0, [0; 10_000]);
    loop {
        match slow.read(&mut sip).unwrap() {
            0 => break,
            read => taken += read,
        }
        thread::sleep(Duration::from_millis(90));
    }
    assert!(
        taken > 400_000 && start.elapsed() > limits.stall * 3,
        "{taken} {:?}",
        start.elapsed()
    );
    assert_eq!(server.traffic.cut(), 1);
}

#[test]
fn plain_http_is_told_that_tls_is_spoken_here() {
    let pair = pair();
    let server = server(short(), &tls(&pair));
    let answer = server.connect().get("/").answer().unwrap();
    assert_eq!((answer.status, answer.text()), (400, "NotTls"));
    assert!(answer.closes());
    assert_eq!(server.served(), 0);
    assert!(server.settles(Duration::from_secs(5)));
}

/// Keeps I11: who has too many connections costs no handshake.
#[test]
fn a_crowded_address_is_closed_before_the_handshake() {
    let pair = pair();
    let limits = Limits {
        connections_per_address: 1,
        ..short()
    };
    let server = server(limits, &tls(&pair));
    let mut first = connect(&server, &pair);
    assert!(hello(&mut first));
    assert!(!hello(&mut connect(&server, &pair)));
    assert_eq!(server.traffic.refused(), 1);
    assert!(hello(&mut first));
}

/// Keeps I11: healthy clients are served while handshakes and readers stall.
#[test]
fn healthy_clients_are_served_while_others_stall() {
    let pair = pair();
    let server = server(short(), &tls(&pair));
    let mut held: Vec<Client> = (0..20).map(|_| server.connect()).collect();
    for client in &mut held {
        client.say([0x16, 3, 1]);
    }
    let mut stopped: Vec<Stream> = (0..5)
        .map(|_| client(server.connect_narrow().stream, &pair, &[&TLS13]))
        .collect();
    for stream in &mut stopped {
        get(stream, "/bytes?50000000", "").unwrap();
    }
    for _ in 0..10 {
        assert!(hello(&mut connect(&server, &pair)));
    }
    assert!(
        server.settles(Duration::from_secs(10)),
        "{:?}",
        server.traffic
    );
}

#[test]
fn a_drain_ends_handshakes_and_lets_transfers_finish() {
    let pair = pair();
    let limits = Limits {
        drain: Duration::from_secs(10),
        head_deadline: Duration::from_secs(10),
        ..short()
    };
    let mut server = server(limits, &tls(&pair));
    let mut running = client(server.connect_narrow().stream, &pair, &[&TLS13]);
    get(&mut running, "/bytes?300000", "").unwrap();
    running.read_exact(&mut [0; 10]).unwrap();
    let mut begun = server.connect();
    begun.say([0x16, 3, 1]);
    assert!(until(Duration::from_secs(1), || server.traffic.live() == 2));
    server.begin_stop();
    assert!(begun.ended());
    assert!(to_end(&mut running).len() >= 300_000 - 10);
    assert_eq!(server.stopped().cut, 0);
}

/// A chain is shown as it stands in the file, leaf first.
#[test]
fn a_chain_is_shown_whole() {
    let authority = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let root = params.self_signed(&authority).unwrap();
    let issuer = rcgen::Issuer::new(params, authority);
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec!["localhost".to_owned()])
        .unwrap()
        .signed_by(&key, &issuer)
        .unwrap();
    let chain = leaf.pem() + &root.pem();
    let tls = Arc::new(Tls::new(chain.as_bytes(), key.serialize_pem().as_bytes()).unwrap());
    let server = server(short(), &tls);
    let root = CertifiedKey {
        cert: root,
        signing_key: KeyPair::generate().unwrap(),
    };
    let mut stream = connect(&server, &root);
    assert!(hello(&mut stream));
    assert_eq!(stream.conn.peer_certificates().unwrap().len(), 2);
}
