/** Replays and resends on a service with a sender and a runner of jobs, as an instance has them. */
import type { Filters } from '../../src/audience/filters.ts'
import {
  type AskedReplay,
  countReplay,
  findResendable,
  planReplay,
} from '../../src/endpoints/start-replay.ts'
import { findJob, type JobSummary } from '../../src/jobs/job.ts'
import { startReplay } from '../../src/jobs/replay-events.ts'
import { startResend } from '../../src/jobs/resend-members.ts'
import { commandActor } from '../../src/operators/actor.ts'
import { textMessage } from '../../tools/simulator/events.ts'
import { type Receiver, type Sending, startSending } from './endpoints.ts'
import { startJobRunner } from './jobs.ts'
import { eventually } from './process.ts'
import type { ReceivedEvent } from './receivers.ts'

/** The range of everything that was received in a test. */
export const TODAY = { from: '2020-01-01', to: '2100-01-01' }

interface Replaying extends Sending {
  /** Starts a replay as an operator does. Returns the job. */
  replay: (endpointId: bigint, asked?: Partial<AskedReplay>) => Promise<bigint>
  resend: (endpointId: bigint, filters?: Filters, rate?: number) => Promise<bigint>
  job: (id: bigint) => Promise<JobSummary>
  endOf: (id: bigint) => Promise<JobSummary>
  /** Delivers messages of these people, one request each, a moment apart. Returns their texts. */
  deliverMessages: (count: number, userIdOf?: (no: number) => string) => Promise<string[]>
  /** Ends the waits of jobs and deliveries, again and again until `work` has resolved. */
  hurrying: <T>(work: Promise<T>) => Promise<T>
  startRunner: () => ReturnType<typeof startJobRunner>
}

/** @param withRunner false: the test takes turns itself or starts a runner later */
export async function startReplaying(withRunner = true): Promise<Replaying> {
  const sending = await startSending()
  const { database, sender, service, tenant } = sending
  const startRunner = () => startJobRunner(database, null, (endpointId) => sender.expect([endpointId]))
  const runner = withRunner ? startRunner() : null
  const job = async (id: bigint) => (await findJob(database, commandActor(), id)) as JobSummary
  const started = (id: bigint) => {
    runner?.wake()
    return id
  }
  return {
    ...sending,
    replay: async (endpointId, asked = {}) => {
      const plan = await planReplay(database, null, endpointId, { rate: 1_000, ...TODAY, ...asked })
      const { events, isMore } = await countReplay(database, plan.endpoint, plan.request)
      return started(
        await database.transaction((transaction) =>
          startReplay(transaction, commandActor(), plan.endpoint, plan.request, isMore ? null : events),
        ),
      )
    },
    resend: async (endpointId, filters = {}, rate = 1_000) => {
      const endpoint = await findResendable(database, null, endpointId)
      return started(
        await database.transaction((transaction) =>
          startResend(transaction, commandActor(), endpoint, { filters, rate }, 0),
        ),
      )
    },
    job,
    endOf: (id) =>
      eventually(
        () => job(id),
        ({ finishedAt }) => finishedAt !== null,
      ),
    deliverMessages: async (count, userIdOf = () => 'Ureplayed') => {
      const texts = Array.from({ length: count }, (_, no) => `words ${no}.`)
      for (const [no, text] of texts.entries())
        await service.deliver(tenant, [textMessage(userIdOf(no), text)])
      return texts
    },
    hurrying: async (work) => {
      const timer = setInterval(() => {
        void sending.makeDue()
        // The only runner is between two turns, or takes the job again after this one.
        void database.query(`update job set leased_until = now() where status = 'running'`)
        runner?.wake()
      }, 50)
      return work.finally(() => clearInterval(timer))
    },
    startRunner,
  }
}

export const eventsOf = ({ received }: Pick<Receiver, 'received'>): ReceivedEvent[] =>
  received.flatMap(({ body }) => JSON.parse(body).events as ReceivedEvent[])

export const textsOf = (receiver: Pick<Receiver, 'received'>): string[] =>
  eventsOf(receiver).map(({ message }) => message?.text)
