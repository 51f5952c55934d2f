"""The store on a real lakeFS: control through its API, bytes through its S3 gateway."""
