//! Runs jobs side by side: so many at a time, the longest first, and none beside one that excludes it.
//!
//! A test on a cluster holds its locks itself, as files (`e2e/src/locks.rs`). Here they only keep a worker from starting what would wait for another.

use super::table::Lock;
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, PoisonError};

/// Something to run.
pub struct Job<'a> {
    pub locks: Vec<Lock>,
    /// What it is likely to take.
    pub seconds: f64,
    pub run: Box<dyn FnOnce() + Send + 'a>,
}

/// Who holds a lock in this run: one alone, or so many together.
#[derive(Default)]
struct Holders(BTreeMap<String, Held>);

enum Held {
    Alone,
    Together(usize),
}

impl Holders {
    fn can_take(&self, locks: &[Lock]) -> bool {
        locks.iter().all(|lock| match self.0.get(&lock.name) {
            None => true,
            Some(Held::Together(_)) => !lock.exclusive,
            Some(Held::Alone) => false,
        })
    }

    fn take(&mut self, locks: &[Lock]) {
        for lock in locks {
            let held = self.0.entry(lock.name.clone()).or_insert(Held::Together(0));
            match held {
                _ if lock.exclusive => *held = Held::Alone,
                Held::Together(count) => *count += 1,
                Held::Alone => {}
            }
        }
    }

    fn release(&mut self, locks: &[Lock]) {
        for lock in locks {
            match self.0.get_mut(&lock.name) {
                Some(Held::Together(count)) if *count > 1 => *count -= 1,
                _ => drop(self.0.remove(&lock.name)),
            }
        }
    }
}

struct Queue<'a> {
    waiting: Vec<Job<'a>>,
    holders: Holders,
}

/// Runs all jobs, `workers` at a time.
///
/// A job that needs a lock alone comes before those that take it together, or it would wait for the last of them; else the longest comes first.
pub fn run(mut jobs: Vec<Job<'_>>, workers: usize) {
    let is_exclusive = |job: &Job<'_>| job.locks.iter().any(|lock| lock.exclusive);
    // The queue is taken from its end.
    jobs.sort_by(|a, b| is_exclusive(a).cmp(&is_exclusive(b)).then(a.seconds.total_cmp(&b.seconds)));
    let workers = workers.min(jobs.len());
    let queue = Mutex::new(Queue { waiting: jobs, holders: Holders::default() });
    let released = Condvar::new();
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(job) = next(&queue, &released) {
                    let Job { locks, run, .. } = job;
                    run();
                    queue.lock().unwrap_or_else(PoisonError::into_inner).holders.release(&locks);
                    released.notify_all();
                }
            });
        }
    });
}

/// The next job whose locks are free, already taken. Waits for one; None when no job is left.
fn next<'a>(queue: &Mutex<Queue<'a>>, released: &Condvar) -> Option<Job<'a>> {
    let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if queue.waiting.is_empty() {
            return None;
        }
        if let Some(at) = queue.waiting.iter().rposition(|job| queue.holders.can_take(&job.locks)) {
            let job = queue.waiting.remove(at);
            queue.holders.take(&job.locks);
            return Some(job);
        }
        queue = released.wait(queue).unwrap_or_else(PoisonError::into_inner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    fn lock(name: &str, exclusive: bool) -> Lock {
        Lock { name: name.to_owned(), exclusive }
    }

    #[test]
    fn every_job_runs_once_the_longest_first() {
        let order = Mutex::new(vec![]);
        let order_of = &order;
        let job = |seconds| Job { locks: vec![], seconds, run: Box::new(move || order_of.lock().unwrap().push(seconds)) };
        run(vec![job(1.0), job(3.0), job(2.0)], 1);
        assert_eq!(*order.lock().unwrap(), [3.0, 2.0, 1.0]);
    }

    #[test]
    fn who_takes_a_lock_alone_runs_beside_nobody_who_takes_it() {
        let inside = Mutex::new((0, 0));
        let seen = Mutex::new(vec![]);
        let (inside, seen_by) = (&inside, &seen);
        let job = |exclusive: bool| Job {
            locks: vec![lock("gateways", exclusive)],
            seconds: 1.0,
            run: Box::new(move || {
                let count = |by: i32| {
                    let mut inside = inside.lock().unwrap();
                    let (alone, together) = &mut *inside;
                    *(if exclusive { alone } else { together }) += by;
                    *inside
                };
                seen_by.lock().unwrap().push(count(1));
                std::thread::yield_now();
                count(-1);
            }),
        };
        run((0..60).map(|n| job(n % 3 == 0)).collect(), 6);
        let seen = seen.lock().unwrap();
        assert_eq!(seen.len(), 60);
        assert!(seen.iter().all(|(alone, together)| *alone == 0 || (*alone, *together) == (1, 0)), "{seen:?}");
    }

    #[test]
    fn locks_of_other_names_and_shared_ones_hold_up_nobody() {
        let (sender, receiver) = channel();
        let waits = Job {
            locks: vec![lock("gateways", false), lock("nodes", true)],
            seconds: 2.0,
            // It ends only if the other runs meanwhile.
            run: Box::new(move || receiver.recv_timeout(Duration::from_secs(60)).unwrap()),
        };
        let tells = Job {
            locks: vec![lock("gateways", false), lock("operator", true)],
            seconds: 1.0,
            run: Box::new(move || sender.send(()).unwrap()),
        };
        run(vec![waits, tells], 2);
    }
}
