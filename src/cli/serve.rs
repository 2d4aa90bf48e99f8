//! `serve`, and what `up` shares with it: the runtime, the signals, the end.

use std::{net::SocketAddr, sync::Arc};

use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::{
    arguments::{Common, Serve},
    beside::{config, opening},
    exit::{Exit, Failure},
    output::Output,
};
use crate::{
    app::{AppError, Service},
    config::Config,
};

/// Serves as configured until told to stop.
pub(super) fn run(common: &Common, serve: &Serve, output: Output) -> Result<(), Failure> {
    if rustix::process::geteuid().is_root() && !serve.allow_root {
        let message = "refusing to serve as root: nothing would separate Holdfast from what else \
                       root does. Run it as a user of its own, or say --allow-root";
        return Err(Failure::new(Exit::Configuration, message));
    }
    let mut config = config(common)?;
    config.listen = serve.listen.unwrap_or(config.listen);
    if !config.listen.ip().is_loopback() && config.tls.is_none() {
        tracing::warn!(
            "listening beyond loopback in plain HTTP: set [tls], or put a proxy that speaks TLS in front"
        );
    }
    let service = Service::open(&config).map_err(|error| opening(&error))?;
    for held in service.roots().filter(|held| held.is_our_own()) {
        tracing::warn!(
            root = held.name(),
            "the root belongs to our own uid: there is no boundary to who writes there"
        );
    }
    let listen = config.listen;
    on_runtime(until_stopped(service, listen, |address| {
        let ready = json!({"url": url(&config, address), "pid": std::process::id()});
        output.print(&ready, |_| format!("serving {}", url(&config, address)))
    }))
}

/// Runs `work` on a runtime of its own.
pub(super) fn on_runtime<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::io("starting threads", &error))?;
    let done = runtime.block_on(work);
    // What still runs has had its time: a reader of a dead disk must not keep us from ending.
    runtime.shutdown_background();
    done
}

/// Serves until SIGTERM or ctrl-C, then drains; a second one ends at once. SIGHUP reads again what
/// can be read again.
pub(super) async fn until_stopped(
    service: Service,
    listen: SocketAddr,
    ready: impl FnOnce(SocketAddr) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let stop = CancellationToken::new();
    let handlers = |error: std::io::Error| Failure::io("handling signals", &error);
    let mut terminate = signal(SignalKind::terminate()).map_err(handlers)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(handlers)?;
    let mut hangup = signal(SignalKind::hangup()).map_err(handlers)?;
    let reloads = Arc::new(service.reloads());
    let on_hangup = async {
        while hangup.recv().await.is_some() {
            let reloads = Arc::clone(&reloads);
            // One after the other; what comes meanwhile is one more, not many.
            if tokio::task::spawn_blocking(move || reloads.run())
                .await
                .is_err()
            {
                tracing::error!("a reload did not end well");
            }
        }
        std::future::pending::<()>().await;
    };
    let on_signal = {
        let stop = stop.clone();
        async move {
            loop {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
                if stop.is_cancelled() {
                    break;
                }
                tracing::info!("stopping: running transfers may finish");
                stop.cancel();
            }
        }
    };
    let mut told = Ok(());
    let cancel = stop.clone();
    let served = service.serve(stop, |address| {
        tracing::info!(%address, "serving");
        told = ready(address);
        if told.is_err() {
            // Nobody reads what we print, so nobody knows where we are.
            cancel.cancel();
        }
    });
    tokio::select! {
        served = served => served.map_err(|error| ended(&error, listen))?,
        () = on_hangup => {}
        () = on_signal => return Err(Failure::new(Exit::Failed, "stopped at once, not drained")),
    }
    told
}

fn ended(error: &AppError, listen: SocketAddr) -> Failure {
    if let AppError::Io { source, .. } = error
        && source.kind() == std::io::ErrorKind::AddrInUse
    {
        let message = format!(
            "{listen} is in use; choose another address with --listen, such as 127.0.0.1:0 for any \
             free port"
        );
        return Failure::new(Exit::TryAgain, message);
    }
    Failure::of(Exit::Failed, error)
}

/// How clients reach the server.
pub(super) fn url(config: &Config, address: SocketAddr) -> String {
    config.public_url.as_ref().map_or_else(
        || format!("{}://{address}", config.scheme()),
        ToString::to_string,
    )
}
