/** All tools of the assistant. Each only reads. */
import type { Tool } from './tool.ts'
import { explainAccount, listAccounts, showTrends } from './tools/account-tools.ts'
import { listDeliveries, listFailedEvents, showEndpoints } from './tools/delivery-tools.ts'
import { checkSystem, showActivity } from './tools/log-tools.ts'
import { showPerson } from './tools/person-tool.ts'

export const TOOLS: readonly Tool[] = [
  listAccounts,
  explainAccount,
  showTrends,
  showEndpoints,
  listDeliveries,
  listFailedEvents,
  showPerson,
  showActivity,
  checkSystem,
]
