/** The report of followers. */
import { Type } from '../http/typebox.ts'
import { GROUPINGS, type ReportQuery, readReport } from '../watch/report.ts'
import { ACCOUNT } from './accounts.ts'
import { Default, Id } from './fields.ts'
import { operationsOf } from './operation.ts'

const { read } = operationsOf({ ...ACCOUNT, plural: 'report' })

const Day = (description: string) => Type.String({ description })

export const REPORT = {
  show: read({
    name: 'report.show',
    does: 'see the report of followers',
    isOfAll: true,
    input: {
      from: Day('first day, such as 2026-11-01; days are those of LINE (UTC+9)'),
      to: Day('last day, inclusive'),
      organization: Type.Optional(Id('only accounts of this organization')),
      account: Type.Optional(Id('only this account')),
      by: Default(Type.Enum([...GROUPINGS], { description: 'rows of the report' }), 'total'),
    },
    run: async ({ database, actor, input }) => {
      const { account = null, organization = null, ...given } = input
      if (account !== null) await ACCOUNT.find(database, actor, account)
      return readReport(database, actor.organizationIds, { ...given, account, organization } as ReportQuery)
    },
  }),
}
