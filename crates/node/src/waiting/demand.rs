//! How many machines are worth keeping ready for one template. Pure; `waiting.rs` keeps them.
//!
//! Each one that was asked for and not there makes one more worth keeping. Of those that nobody took in a whole period, half are not. So
//! what comes in bursts is met from the second burst on, and costs little where nothing comes any more.

/// What was asked for lately, and how many machines follow from that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Demand {
    wanted: usize,
    /// Fewest that were left at any moment of this period: so many were not needed.
    idle: usize,
}

impl Demand {
    pub(super) fn new(least: usize) -> Self {
        Self { wanted: least, idle: 0 }
    }

    /// How many should be ready.
    pub(super) fn wanted(&self) -> usize {
        self.wanted
    }

    /// One was asked for, and there was none.
    pub(super) fn missed(&mut self) {
        self.wanted += 1;
        self.idle = 0;
    }

    /// One was taken, and so many are left.
    pub(super) fn taken(&mut self, left: usize) {
        self.idle = self.idle.min(left);
    }

    /// A period is over, with so many ready.
    pub(super) fn period_over(&mut self, least: usize, ready: usize) {
        self.wanted = self.wanted.saturating_sub(self.idle.div_ceil(2)).max(least);
        self.idle = ready.min(self.wanted);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_burst_is_met_the_next_time_and_forgotten_later() {
        let mut demand = Demand::new(2);
        demand.period_over(2, 2);
        demand.taken(1);
        demand.taken(0);
        (0..14).for_each(|_| demand.missed());
        assert_eq!(demand.wanted(), 16);

        // It comes again: all of them are there.
        demand.period_over(2, 16);
        (0..16).rev().for_each(|left| demand.taken(left));
        demand.period_over(2, 16);
        assert_eq!(demand.wanted(), 16);

        // Half of it comes.
        (8..16).rev().for_each(|left| demand.taken(left));
        demand.period_over(2, 16);
        assert_eq!(demand.wanted(), 12);

        // Nobody comes any more.
        let mut periods = 0;
        while demand.wanted() > 2 {
            demand.period_over(2, demand.wanted());
            periods += 1;
        }
        assert!(periods <= 6, "{periods}");
    }

    #[derive(Debug, Clone)]
    enum Event {
        Asked,
        Made,
        PeriodOver,
    }

    fn any_event() -> impl Strategy<Value = Event> {
        prop_oneof![Just(Event::Asked), Just(Event::Made), Just(Event::PeriodOver)]
    }

    proptest! {
        #[test]
        fn never_fewer_than_the_least_nor_more_than_were_asked_for(
            least in 1usize..4, events in proptest::collection::vec(any_event(), 0..200)
        ) {
            let (mut demand, mut ready, mut asked) = (Demand::new(least), 0, 0);
            for event in events {
                match event {
                    Event::Asked if ready == 0 => {
                        demand.missed();
                        asked += 1;
                    }
                    Event::Asked => {
                        ready -= 1;
                        demand.taken(ready);
                    }
                    Event::Made => ready = (ready + 1).min(demand.wanted()),
                    Event::PeriodOver => {
                        demand.period_over(least, ready);
                        ready = ready.min(demand.wanted());
                    }
                }
                prop_assert!((least..=least + asked).contains(&demand.wanted()));
            }
        }
    }
}
