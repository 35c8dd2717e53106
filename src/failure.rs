//! How commands fail: one message on stderr and an exit code that says whose fault it is.

use std::fmt::Display;
use std::process::ExitCode;

use tpusim_driver::DriverError;
use tpusim_sim::FaultKind;

/// Why a command ends early.
#[derive(Debug)]
pub enum Failure {
    /// The program at hand is wrong: exit code 1.
    Program(String),
    /// The command line, a file or the system is: exit code 2.
    Usage(String),
    /// Nobody reads our output any more; there is nothing to say and no one to tell.
    Closed,
}

impl Failure {
    /// The program is at fault.
    pub fn program(message: impl Display) -> Failure {
        Failure::Program(message.to_string())
    }

    /// The user or the system is.
    pub fn usage(message: impl Display) -> Failure {
        Failure::Usage(message.to_string())
    }

    /// Prints the message and gives the exit code.
    pub fn report(self) -> ExitCode {
        use std::io::Write;
        let (message, code) = match self {
            Failure::Program(m) => (m, 1),
            Failure::Usage(m) => (m, 2),
            Failure::Closed => return ExitCode::SUCCESS,
        };
        // Diagnostics of the front ends bring their own prefix.
        let prefix = if message.starts_with("error") { "" } else { "error: " };
        let _ = writeln!(std::io::stderr(), "{prefix}{}", message.trim_end());
        ExitCode::from(code)
    }
}

impl From<DriverError> for Failure {
    fn from(e: DriverError) -> Failure {
        match e {
            DriverError::Inputs { .. } | DriverError::InputBytes { .. } => Failure::usage(e),
            // What the user has to say, or has said about something that is not there.
            DriverError::Fault(f)
                if matches!(
                    *f.kind,
                    FaultKind::TripCount { .. } | FaultKind::NoFlow { .. } | FaultKind::NoBranch { .. }
                ) =>
            {
                Failure::usage(f.kind)
            }
            _ => Failure::program(e),
        }
    }
}
