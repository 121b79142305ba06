/** The first line of a CSV file of members, which the service and the page of imports check. */

/** The columns that an import reads. All others are ignored. */
export const COLUMNS = ['id', 'userId', 'externalId', 'tags', 'attributes']

export interface ColumnFault {
  kind: 'repeated' | 'missing'
  /** the repeated ones, or all */
  columns: string[]
}

/** @param columns trimmed names. Null: the columns can be imported. */
export function findColumnFault(columns: string[]): ColumnFault | null {
  const repeated = COLUMNS.filter((name) => columns.indexOf(name) !== columns.lastIndexOf(name))
  if (repeated.length > 0) return { kind: 'repeated', columns: repeated }
  const isNamed = (names: string[]) => names.some((name) => columns.includes(name))
  // A mistyped column would be ignored, and the import would change nothing.
  const isUsed = isNamed(['id', 'userId']) && isNamed(['externalId', 'tags', 'attributes'])
  return isUsed ? null : { kind: 'missing', columns }
}
