/** Random requests to every route, enough to find rare combinations. */
import { describeRandomRequests } from '../support/fuzz.ts'

await describeRandomRequests(2_000)
