/** Replays and resends on a service with a sender and a runner of jobs, as an instance has them. */
import type { Filters } from '../../src/audience/filters.ts'
import { type AskedReplay, countReplay, findReplayable, planReplay } from '../../src/endpoints/replays.ts'
import { findJob, type JobSummary } from '../../src/jobs/job.ts'
import { startReplay, startResend } from '../../src/jobs/send-again.ts'
import { commandActor } from '../../src/operators/actor.ts'
import { textMessage } from '../../tools/simulator/events.ts'
import { type Receiver, startReceiver, startSending } from './endpoints.ts'
import { endWaitsOfJobs, startJobRunner } from './jobs.ts'
import { eventually } from './process.ts'
import type { ReceivedEvent } from './receivers.ts'

/** The range of everything that was received in a test. */
export const TODAY = { from: '2020-01-01', to: '2100-01-01' }

/** What was received within 10 s cannot be replayed yet. */
export const setBackEvents = (database: Awaited<ReturnType<typeof startSending>>['database']) =>
  database.query(
    `update event set received_at = received_at - interval '1 minute' where received_at > now() - interval '30 seconds'`,
  )

/** @param withRunner false: the test takes turns itself or starts a runner later */
export async function startReplaying(withRunner = true) {
  const sending = await startSending()
  const { database, sender, service, tenant } = sending
  const startRunner = () => startJobRunner(database, null, (endpointId) => sender.expect([endpointId]))
  const runner = withRunner ? startRunner() : null
  const job = async (id: bigint) => (await findJob(database, commandActor(), id)) as JobSummary
  /** Resolves with the job when it is as wanted. */
  const until = (id: bigint, wanted: (found: JobSummary) => boolean) => eventually(() => job(id), wanted)
  const started = (id: bigint) => {
    runner?.wake()
    return id
  }
  return {
    ...sending,
    /** An endpoint with a receiver. */
    addReceiver: async (columns: Record<string, unknown> = {}) => {
      const receiver = await startReceiver()
      return { receiver, id: await sending.addEndpoint(receiver.url, columns) }
    },
    /** Starts a replay as an operator does. Returns the job. */
    replay: async (endpointId: bigint, asked: Partial<AskedReplay> = {}) => {
      const plan = await planReplay(database, null, endpointId, { rate: 1_000, ...TODAY, ...asked })
      const { events, isMore } = await countReplay(database, plan.endpoint, plan.request)
      return started(
        await database.transaction((transaction) =>
          startReplay(transaction, commandActor(), plan.endpoint, plan.request, isMore ? null : events),
        ),
      )
    },
    resend: async (endpointId: bigint, filters: Filters = {}, rate = 1_000) => {
      const endpoint = await findReplayable(database, null, endpointId, 'members')
      return started(
        await database.transaction((transaction) =>
          startResend(transaction, commandActor(), endpoint, { filters, rate }, 0),
        ),
      )
    },
    ...{ job, until },
    endOf: (id: bigint) => until(id, ({ finishedAt }) => finishedAt !== null),
    /** Delivers messages of these people, one request each, a moment apart. Returns their texts. */
    deliverMessages: async (count: number, userIdOf: (no: number) => string = () => 'Ureplayed') => {
      const texts = Array.from({ length: count }, (_, no) => `words ${no}.`)
      for (const [no, text] of texts.entries())
        await service.deliver(tenant, [textMessage(userIdOf(no), text)])
      await setBackEvents(database)
      return texts
    },
    /** Ends the waits of jobs and deliveries, again and again until `work` has resolved. */
    hurrying: async <T>(work: Promise<T>): Promise<T> => {
      const timer = setInterval(() => {
        void sending.makeDue()
        // The only runner is between two turns, or takes the job again after this one.
        void endWaitsOfJobs(database)
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
