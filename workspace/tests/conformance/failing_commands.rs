//! Makes the n-th command of provider Zfs fail. What its own processes do on a disk is theirs; to us a command is done or not, and we hear of
//! it or not.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;

use yoi_workspace::{CommandFault, FaultPoint, Faults};

/// How a command fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The process dies before it.
    Death,
    /// It does nothing and fails.
    NotRun,
    /// It is done, and seems to have failed: it took too long, for example.
    AnswerLost,
}

pub const FAILURES: [Failure; 3] = [Failure::Death, Failure::NotRun, Failure::AnswerLost];

#[derive(Default)]
pub struct FailingCommands(Mutex<State>);

#[derive(Default)]
struct State {
    /// Which command fails, counted from 1, and how. None: no command does.
    armed: Option<(usize, Failure)>,
    passed: usize,
    failed: Option<String>,
}

struct Died;

impl Faults for FailingCommands {
    fn on_point(&self, _: FaultPoint) {}

    fn on_command(&self, args: &[&str]) -> CommandFault {
        let mut state = self.0.lock().unwrap();
        let Some((nth, failure)) = state.armed else { return CommandFault::None };
        state.passed += 1;
        if state.passed != nth {
            return CommandFault::None;
        }
        state.failed = Some(args.join(" "));
        drop(state);
        match failure {
            Failure::Death => resume_unwind(Box::new(Died)),
            Failure::NotRun => CommandFault::NotRun,
            Failure::AnswerLost => CommandFault::AnswerLost,
        }
    }
}

impl FailingCommands {
    /// Runs `act` with a command that fails. Returns what it returned, None if it died; and the command, None if there were fewer.
    pub fn run<T>(&self, nth: usize, failure: Failure, act: impl FnOnce() -> T) -> (Option<T>, Option<String>) {
        *self.0.lock().unwrap() = State { armed: Some((nth, failure)), ..State::default() };
        let answer = match catch_unwind(AssertUnwindSafe(act)) {
            Ok(answer) => Some(answer),
            Err(cause) if cause.is::<Died>() => None,
            Err(cause) => resume_unwind(cause),
        };
        (answer, std::mem::take(&mut *self.0.lock().unwrap()).failed)
    }
}
