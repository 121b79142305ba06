import { ACCOUNTS } from './accounts.ts'
import { ACTIVITY } from './activity.ts'
import { CHANNELS } from './channels.ts'
import { CLIENTS } from './clients.ts'
import { ENDPOINTS } from './endpoints.ts'
import { EVENTS } from './events.ts'
import { FLEET } from './fleet.ts'
import { ACCOUNT_JOBS, JOBS } from './jobs.ts'
import { KEYS } from './keys.ts'
import { MEMBERS } from './members.ts'
import type { Operation } from './operation.ts'
import { OPERATORS } from './operators.ts'
import { ORGANIZATIONS } from './organizations.ts'
import { REPLAYS } from './replays.ts'
import { REPORT } from './report.ts'
import { SEGMENTS } from './segments.ts'

/** Every operation, in the order of docs/roles.md. */
export const OPERATIONS = [
  ORGANIZATIONS,
  FLEET,
  REPORT,
  ACCOUNTS,
  MEMBERS,
  ENDPOINTS,
  REPLAYS,
  SEGMENTS,
  CLIENTS,
  KEYS,
  EVENTS,
  JOBS,
  ACCOUNT_JOBS,
  CHANNELS,
  OPERATORS,
  ACTIVITY,
].flatMap((operations): Operation[] => Object.values(operations))
